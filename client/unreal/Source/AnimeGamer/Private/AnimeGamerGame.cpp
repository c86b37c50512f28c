#include "AnimeGamerGame.h"

#include "AnimeGamerLink.h"
#include "AnimeGamerSubsystem.h"
#include "Engine/Texture2D.h"
#include "Misc/FileHelper.h"
#include "RHICommandList.h"
#include "RenderingThread.h"
#include "TextureResource.h"

namespace
{
FAnimeGamerValues ToValues(const ag_character& Character)
{
	FAnimeGamerValues Values;
	Values.Stamina = Character.stamina;
	Values.Social = Character.social;
	Values.Entertainment = Character.entertainment;
	return Values;
}

FAnimeGamerUnderstood ToUnderstood(const ag_understood& Said)
{
	FAnimeGamerUnderstood Understood;
	Understood.Text = ToText(Said.text);
	Understood.Notice = ToText(Said.notice);
	for (size_t Number = 0; Number < Said.count; ++Number)
	{
		FAnimeGamerPerson Person;
		Person.Name = ToText(Said.people[Number].name);
		Person.Clothes = ToText(Said.people[Number].clothes);
		Understood.People.Add(Person);
	}
	Understood.Motion = ToText(Said.motion);
	Understood.MotionLevel = Said.level;
	Understood.Place = ToText(Said.place);
	Understood.Hour = ToText(Said.hour);
	Understood.Position = ToText(Said.position);
	Understood.Unknown = ToTexts(Said.unknown);
	return Understood;
}

FAnimeGamerState ToState(const ag_state& State)
{
	FAnimeGamerState Shown;
	Shown.MotionLevel = State.motion_level;
	Shown.Character = ToValues(State.character);
	Shown.Shown = ToValues(State.shown);
	return Shown;
}

TArray<FAnimeGamerTurn> ToTurns(const ag_listed& Listed)
{
	TArray<FAnimeGamerTurn> Turns;
	for (size_t Number = 0; Number < Listed.count; ++Number)
	{
		FAnimeGamerTurn Turn;
		Turn.Turn = static_cast<int32>(Listed.turns[Number].turn);
		Turn.Instruction = ToText(Listed.turns[Number].instruction);
		Turns.Add(Turn);
	}
	return Turns;
}
}

FAnimeGamerLink::FAnimeGamerLink(UAnimeGamerGame& InOwner, TSharedPtr<FAnimeGamerConnection> InConnection, const FString& Token)
	: Owner(InOwner), Connection(InConnection)
{
	Game = Connection->Core.add(*this);
	Game->open(std::string(TCHAR_TO_UTF8(*Token)));
}

FAnimeGamerLink::~FAnimeGamerLink()
{
	Connection->Core.leave(Game);
}

void FAnimeGamerLink::opened(const ag_game_info& Info, const ag_understood& Seen)
{
	Owner.Token = ToText(Info.token);
	Owner.Seen = ToUnderstood(Seen);
	Owner.OnOpened.Broadcast(Owner.Token);
}

void FAnimeGamerLink::offered(const std::vector<std::string>& Instructions)
{
	Owner.OnOffers.Broadcast(ToTexts(Instructions));
}

void FAnimeGamerLink::heard(const ag_event& Event)
{
	switch (Event.type)
	{
	case AG_EVENT_UNDERSTOOD:
		Owner.OnUnderstood.Broadcast(ToUnderstood(Event.of.understood));
		break;
	case AG_EVENT_STATE:
		Owner.OnState.Broadcast(ToState(Event.of.state));
		break;
	case AG_EVENT_PROGRESS:
		Owner.OnProgress.Broadcast(static_cast<float>(Event.of.progress.step) / static_cast<float>(Event.of.progress.steps), static_cast<float>(Event.of.progress.seconds_left));
		break;
	case AG_EVENT_DONE:
		bClipRuns = true;
		Owner.OnDone.Broadcast(static_cast<int32>(Event.of.done.turns), static_cast<float>(Event.of.done.total_s));
		break;
	case AG_EVENT_LISTED:
		Owner.OnListed.Broadcast(ToTurns(Event.of.listed), Event.of.listed.more != 0);
		break;
	case AG_EVENT_EXPORTED:
		Owner.OnExported.Broadcast(ToText(Event.of.exported.folder), static_cast<int32>(Event.of.exported.turns));
		break;
	case AG_EVENT_GAME_CLOSED:
		Owner.OnClosed.Broadcast();
		break;
	default:
		break;
	}
}

void FAnimeGamerLink::frame(animegamer_unreal::Picture Picture)
{
	Clip.fps = Connection->Core.fps();
	Clip.add(std::move(Picture));
}

void FAnimeGamerLink::rewound(const ag_game_info& Info)
{
	Owner.OnRewound.Broadcast(static_cast<int32>(Info.turns));
}

void FAnimeGamerLink::branched(const ag_game_info& Info)
{
	Owner.OnBranched.Broadcast(ToText(Info.token), static_cast<int32>(Info.turns));
}

void FAnimeGamerLink::failed(const std::string& Code, const std::string& Text, const std::string& WhatToDo)
{
	UE_LOG(LogAnimeGamer, Warning, TEXT("%s: %s; %s"), UTF8_TO_TCHAR(Code.c_str()), UTF8_TO_TCHAR(Text.c_str()), UTF8_TO_TCHAR(WhatToDo.c_str()));
	Owner.OnError.Broadcast(ToText(Code), ToText(Text), ToText(WhatToDo));
}

animegamer_unreal::Game* UAnimeGamerGame::Find()
{
	if (Link.IsValid())
	{
		return Link->Game;
	}
	const UAnimeGamerSubsystem* const Subsystem = GetTypedOuter<UAnimeGamerSubsystem>();
	if (Subsystem != nullptr && !Subsystem->RefusalCode.IsEmpty())
	{
		OnError.Broadcast(Subsystem->RefusalCode, Subsystem->RefusalText, Subsystem->RefusalWhatToDo);
	}
	else
	{
		OnError.Broadcast(TEXT("closed"), TEXT("the game instance has ended"), TEXT("get a game from the new one, and Resume the token"));
	}
	return nullptr;
}

bool UAnimeGamerGame::Say(const FString& Instruction)
{
	animegamer_unreal::Game* const Game = Find();
	return Game != nullptr && Game->say(TCHAR_TO_UTF8(*Instruction));
}

bool UAnimeGamerGame::Replay(int32 Turn)
{
	animegamer_unreal::Game* const Game = Find();
	return Game != nullptr && Game->replay(Turn);
}

void UAnimeGamerGame::Cancel()
{
	if (Link.IsValid())
	{
		Link->Game->cancel();
	}
}

void UAnimeGamerGame::Rewind(int32 Turn)
{
	if (animegamer_unreal::Game* const Game = Find())
	{
		Game->rewind(Turn);
	}
}

void UAnimeGamerGame::Branch(int32 Turn)
{
	if (animegamer_unreal::Game* const Game = Find())
	{
		Game->branch(Turn);
	}
}

void UAnimeGamerGame::List(int32 Before)
{
	if (animegamer_unreal::Game* const Game = Find())
	{
		Game->list(Before);
	}
}

void UAnimeGamerGame::Export()
{
	if (animegamer_unreal::Game* const Game = Find())
	{
		Game->export_game();
	}
}

void UAnimeGamerGame::CloseGame()
{
	if (animegamer_unreal::Game* const Game = Find())
	{
		Game->close();
	}
}

void UAnimeGamerGame::Resume(const FString& InToken)
{
	if (Find() != nullptr)
	{
		const TSharedPtr<FAnimeGamerConnection> Connection = Link->Connection;
		Link = MakeShared<FAnimeGamerLink>(*this, Connection, InToken);
		Textures.Empty();
	}
}

bool UAnimeGamerGame::StartFromPicture(const TArray<uint8>& Picture, const FString& Motion)
{
	animegamer_unreal::Game* const Game = Find();
	return Game != nullptr && Game->open_picture(Picture.GetData(), static_cast<size_t>(Picture.Num()), TCHAR_TO_UTF8(*Motion));
}

bool UAnimeGamerGame::StartFromPictureFile(const FString& File, const FString& Motion)
{
	TArray<uint8> Picture;
	if (!FFileHelper::LoadFileToArray(Picture, *File))
	{
		OnError.Broadcast(TEXT("bad_argument"), File + TEXT(" cannot be read"), TEXT("give the whole path of a PNG, JPEG or WebP file"));
		return false;
	}
	return StartFromPicture(Picture, Motion);
}

TArray<FString> UAnimeGamerGame::GetOffers() const
{
	return Link.IsValid() ? ToTexts(Link->Game->offers()) : TArray<FString>();
}

int64 UAnimeGamerGame::NextTicket() const
{
	return Link.IsValid() ? Link->Game->next_ticket() : 0;
}

int64 UAnimeGamerGame::Ticket() const
{
	return Link.IsValid() ? Link->Game->ticket() : 0;
}

UTexture2D* UAnimeGamerGame::GetTexture() const
{
	const int32 Shown = Link.IsValid() && Link->Ring.IsValid() ? Link->Ring->shown() : -1;
	return Shown >= 0 ? Textures[Shown].Get() : nullptr;
}

void UAnimeGamerGame::MakeTextures(int32 Width, int32 Height)
{
	// A new ring: render commands of the old one hold it until they have run. The old textures go with the next garbage collection.
	Link->Ring = MakeShared<animegamer_unreal::TextureRing, ESPMode::ThreadSafe>();
	Link->Uploads = 0;
	Textures.Empty();
	for (int32 Number = 0; Number < animegamer_unreal::TextureRing::size; ++Number)
	{
		UTexture2D* const Texture = UTexture2D::CreateTransient(Width, Height, PF_B8G8R8A8);
		Texture->SRGB = true;
		Texture->UpdateResource();
		Textures.Add(Texture);
	}
}

void UAnimeGamerGame::ShowPictures()
{
	if (!Link.IsValid())
	{
		return;
	}
	// Objects that listen may call Resume, which replaces the link.
	const TSharedPtr<FAnimeGamerLink> Now = Link;
	if (Now->Ring.IsValid() && Now->Ring->show(GFrameCounter) >= 0)
	{
		--Now->Uploads;
		OnFrame.Broadcast(GetTexture());
	}
	if (Link == Now && Now->Clip.is_due(FPlatformTime::Seconds()))
	{
		const std::pair<int, int> Size = Now->Clip.size();
		if (!Now->Ring.IsValid() || Textures[0]->GetSizeX() != Size.first || Textures[0]->GetSizeY() != Size.second)
		{
			MakeTextures(Size.first, Size.second);
		}
		const int32 Slot = Now->Ring->begin_write(GFrameCounter);
		if (Slot >= 0)
		{
			// The resource is made by a render command before this one; it is released by one after it.
			FTextureResource* const Resource = Textures[Slot]->GetResource();
			const auto Picture = MakeShared<animegamer_unreal::Picture, ESPMode::ThreadSafe>(Now->Clip.take());
			const auto Ring = Now->Ring;
			++Now->Uploads;
			ENQUEUE_RENDER_COMMAND(AnimeGamerUpload)([Resource, Picture, Ring, Slot](FRHICommandListImmediate& RHICmdList)
			{
				if (Resource != nullptr && Resource->TextureRHI.IsValid())
				{
					const FUpdateTextureRegion2D Region(0, 0, 0, 0, Picture->width, Picture->height);
					RHICmdList.UpdateTexture2D(Resource->TextureRHI, 0, Region, Picture->stride, Picture->pixels());
				}
				Ring->end_write(Slot);
			});
		}
	}
	if (Link == Now && Now->bClipRuns && Now->Clip.waiting() == 0 && Now->Uploads == 0)
	{
		Now->bClipRuns = false;
		OnClipEnd.Broadcast();
	}
}
