#include "AnimeGamerPlayTurn.h"

#include "AnimeGamerSubsystem.h"
#include "Engine/Engine.h"
#include "Engine/GameInstance.h"
#include "Engine/Texture2D.h"
#include "Engine/World.h"

UAnimeGamerPlayTurn* UAnimeGamerPlayTurn::PlayTurn(UObject* WorldContextObject, FName GameName, const FString& Instruction)
{
	UAnimeGamerPlayTurn* const Node = NewObject<UAnimeGamerPlayTurn>();
	Node->RegisterWithGameInstance(WorldContextObject);
	Node->Sentence = Instruction;
	UWorld* const World = GEngine->GetWorldFromContextObject(WorldContextObject, EGetWorldErrorMode::LogAndReturnNull);
	UGameInstance* const Instance = World != nullptr ? World->GetGameInstance() : nullptr;
	UAnimeGamerSubsystem* const Subsystem = Instance != nullptr ? Instance->GetSubsystem<UAnimeGamerSubsystem>() : nullptr;
	Node->Game = Subsystem != nullptr ? Subsystem->GetGame(GameName) : nullptr;
	return Node;
}

void UAnimeGamerPlayTurn::Activate()
{
	if (Game == nullptr)
	{
		Known.ErrorCode = TEXT("no_game");
		Known.WhatToDo = TEXT("play turns in a running game");
		Tell(OnError, TEXT("there is no game instance"));
		End();
		return;
	}
	Game->OnUnderstood.AddDynamic(this, &UAnimeGamerPlayTurn::HandleUnderstood);
	Game->OnState.AddDynamic(this, &UAnimeGamerPlayTurn::HandleState);
	Game->OnProgress.AddDynamic(this, &UAnimeGamerPlayTurn::HandleProgress);
	Game->OnFrame.AddDynamic(this, &UAnimeGamerPlayTurn::HandleFrame);
	Game->OnDone.AddDynamic(this, &UAnimeGamerPlayTurn::HandleDone);
	Game->OnError.AddDynamic(this, &UAnimeGamerPlayTurn::HandleError);
	Game->OnClipEnd.AddDynamic(this, &UAnimeGamerPlayTurn::HandleClipEnd);
	Ticket = Game->NextTicket();
	Game->Say(Sentence);
}

void UAnimeGamerPlayTurn::Cancel()
{
	if (Game == nullptr || !Game->CancelTicket(Ticket)) // else On Error comes, when the server has stopped it
	{
		End();
	}
}

// Several nodes may listen to one game: each hears its own turn.
bool UAnimeGamerPlayTurn::IsMine()
{
	const bool bMine = Game != nullptr && Game->Ticket() == Ticket;
	if (bMine && Game->TurnHeard() != 0)
	{
		Turn = static_cast<int32>(Game->TurnHeard());
	}
	return bMine;
}

void UAnimeGamerPlayTurn::Tell(const FAnimeGamerOnPlayTurn& Delegate, const FString& Text)
{
	Delegate.Broadcast(Picture, Turn, Shown, Text, Known);
}

void UAnimeGamerPlayTurn::HandleUnderstood(const FAnimeGamerUnderstood& Understood)
{
	if (IsMine())
	{
		Known.Understood = Understood;
		Tell(OnUnderstood, Understood.Text);
	}
}

void UAnimeGamerPlayTurn::HandleState(const FAnimeGamerState& State)
{
	if (IsMine())
	{
		Known.State = State;
		Tell(OnState, FString());
	}
}

void UAnimeGamerPlayTurn::HandleProgress(float Fraction, float SecondsLeft)
{
	if (IsMine())
	{
		Known.Fraction = Fraction;
		Known.SecondsLeft = SecondsLeft;
		Tell(OnProgress, FString());
	}
}

void UAnimeGamerPlayTurn::HandleFrame(UTexture2D* Texture, int32, int32 Index)
{
	if (IsMine())
	{
		Picture = Texture;
		Shown = Index;
		Tell(OnFrame, FString());
	}
}

void UAnimeGamerPlayTurn::HandleDone(int32 Turns, float Seconds)
{
	if (IsMine())
	{
		Known.Turns = Turns;
		Known.Seconds = Seconds;
		bDone = true;
		Tell(OnDone, FString());
		if (bClipEnded)
		{
			End();
		}
	}
}

void UAnimeGamerPlayTurn::HandleError(const FString& Code, const FString& Text, const FString& WhatToDo, const TArray<FAnimeGamerAnswer>& Answers)
{
	if (IsMine())
	{
		Known.ErrorCode = Code;
		Known.WhatToDo = WhatToDo;
		Known.Understood.Answers = Answers;
		Tell(OnError, Text);
		End();
	}
}

void UAnimeGamerPlayTurn::HandleClipEnd(int32)
{
	// A later clip's end is the end of this one, too: the display skips clips that it cannot show in time.
	bClipEnded = bClipEnded || (Game != nullptr && Game->Ticket() >= Ticket);
	if (bDone && bClipEnded)
	{
		End();
	}
}

void UAnimeGamerPlayTurn::End()
{
	if (Game != nullptr)
	{
		Game->OnUnderstood.RemoveAll(this);
		Game->OnState.RemoveAll(this);
		Game->OnProgress.RemoveAll(this);
		Game->OnFrame.RemoveAll(this);
		Game->OnDone.RemoveAll(this);
		Game->OnError.RemoveAll(this);
		Game->OnClipEnd.RemoveAll(this);
		Game = nullptr;
	}
	SetReadyToDestroy();
}
