#include "AnimeGamerSubsystem.h"

#include "AnimeGamerGame.h"
#include "AnimeGamerLink.h"
#include "AnimeGamerSettings.h"

DEFINE_LOG_CATEGORY_STATIC(LogAnimeGamer, Log, All);

void UAnimeGamerSubsystem::Initialize(FSubsystemCollectionBase& Collection)
{
	Super::Initialize(Collection);
	// A ticker of the engine, not of a world: it also runs while a game is paused and between levels, so pings are answered.
	Ticker = FTSTicker::GetCoreTicker().AddTicker(FTickerDelegate::CreateUObject(this, &UAnimeGamerSubsystem::Tick));
}

void UAnimeGamerSubsystem::Deinitialize()
{
	FTSTicker::GetCoreTicker().RemoveTicker(Ticker);
	for (auto& Entry : Games)
	{
		Entry.Value->Link.Reset();
	}
	Games.Empty();
	if (Connection.IsValid())
	{
		Connection->Core.close(); // ends the client's thread, without waiting for the network; also within a tick
	}
	Connection.Reset();
	Super::Deinitialize();
}

UAnimeGamerGame* UAnimeGamerSubsystem::GetGame(FName Name)
{
	if (const TObjectPtr<UAnimeGamerGame>* const Found = Games.Find(Name))
	{
		return Found->Get();
	}
	if (!Connect())
	{
		return nullptr;
	}
	UAnimeGamerGame* const Game = NewObject<UAnimeGamerGame>(this);
	Games.Add(Name, Game);
	Game->Link = MakeShared<FAnimeGamerLink>(*Game, Connection, FString());
	return Game;
}

void UAnimeGamerSubsystem::AskStatus()
{
	if (!Connect())
	{
		return;
	}
	Connection->Core.ask(&ag_status, [this](const ag_event& Event)
	{
		FAnimeGamerStatus Status;
		if (Event.type == AG_EVENT_STATUS)
		{
			Status.State = FString(UTF8_TO_TCHAR(Event.of.status.state));
			Status.Bundle = FString(UTF8_TO_TCHAR(Event.of.status.bundle));
			Status.Queue = static_cast<int32>(Event.of.status.queue);
			Status.Running = static_cast<int32>(Event.of.status.running);
		}
		else
		{
			const std::string Error = std::string(Event.of.error.text) + "; " + Event.of.error.what_to_do;
			Status.Error = FString(UTF8_TO_TCHAR(Error.c_str()));
		}
		OnStatus.Broadcast(Status);
	});
}

// False: the address is none; the log says so.
bool UAnimeGamerSubsystem::Connect()
{
	if (!Connection.IsValid())
	{
		const UAnimeGamerSettings* const Settings = GetDefault<UAnimeGamerSettings>();
		Connection = MakeShared<FAnimeGamerConnection>(Settings->Address, Settings->TimeoutSeconds);
		if (!Connection->Core.working())
		{
			UE_LOG(LogAnimeGamer, Error, TEXT("%s"), UTF8_TO_TCHAR(Connection->Core.error().c_str()));
			Connection.Reset();
		}
	}
	return Connection.IsValid();
}

bool UAnimeGamerSubsystem::Tick(float)
{
	if (Connection.IsValid())
	{
		const TSharedPtr<FAnimeGamerConnection> Now = Connection;
		Now->Core.tick();
		TArray<TObjectPtr<UAnimeGamerGame>> All;
		Games.GenerateValueArray(All);
		for (const auto& Game : All)
		{
			Game->ShowPictures();
		}
	}
	return true;
}
