#include "AnimeGamerSubsystem.h"

#include "AnimeGamerGame.h"
#include "AnimeGamerLink.h"
#include "AnimeGamerSettings.h"

DEFINE_LOG_CATEGORY_STATIC(LogAnimeGamer, Log, All);

namespace
{
FAnimeGamerWelcome ToWelcome(const ag_welcome& Said)
{
	FAnimeGamerWelcome Welcome;
	Welcome.Bundle = ToText(Said.bundle);
	Welcome.Width = Said.width;
	Welcome.Height = Said.height;
	Welcome.bStartsFromPictures = Said.picture != 0;
	Welcome.People = ToTexts(Said.people);
	Welcome.Motions = ToTexts(Said.motions);
	Welcome.Places = ToTexts(Said.places);
	Welcome.Hours = ToTexts(Said.hours);
	Welcome.Clothes = ToTexts(Said.clothes);
	Welcome.Manners = ToTexts(Said.manners);
	return Welcome;
}
}

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
			Status.State = ToText(Event.of.status.state);
			Status.Bundle = ToText(Event.of.status.bundle);
			Status.Queue = static_cast<int32>(Event.of.status.queue);
			Status.Running = static_cast<int32>(Event.of.status.running);
		}
		else
		{
			Status.Error = ToText(std::string(Event.of.error.text) + "; " + Event.of.error.what_to_do);
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
			return false;
		}
		Connection->Core.welcomed = [this](const ag_welcome& Said)
		{
			Welcome = ToWelcome(Said);
			OnConnected.Broadcast(Welcome);
		};
	}
	return true;
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
